// node gemini_worker.mjs PACKAGE_FOLDER: Gemini CLI's own LoopDetectionService, fed what bench/detectors.py sends.
// A line in: {"file": JSON list of deltas, "limit": how many of them (0: all), "first": stop at the first verdict}.
// A line out: {"ns": processor time, "chars", "at": UTF-16 offset of the first verdict or -1, "fired"}.
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

console.debug = () => {};
const module = path.join(process.argv[2], 'dist/src/services/loopDetectionService.js');
const { LoopDetectionService } = await import(pathToFileURL(module));

// Everything that the service may ask of its configuration, answered with "no".
const config = new Proxy({}, {
  get: (_, key) => {
    if (key === 'then') return undefined;
    if (key === 'config') return config;
    if (key === 'getDebugLogger') return () => ({ debug() {} });
    return () => false;
  },
});

const files = new Map();
function deltas(file) {
  if (!files.has(file)) files.set(file, JSON.parse(fs.readFileSync(file, 'utf8')).map((value) => ({ type: 'content', value })));
  return files.get(file);
}

function fires(service, event) {
  try {
    return service.addAndCheck(event).count > 0;
  } catch {
    return true; // only its telemetry, which has no configuration here, can throw: it throws at a verdict
  }
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { file, limit, first } = JSON.parse(line);
  const events = limit ? deltas(file).slice(0, limit) : deltas(file);
  const service = new LoopDetectionService(config);
  service.reset('prompt', 'user');
  let chars = 0, at = -1, fired = 0;
  const start = process.cpuUsage();
  for (const event of events) {
    chars += event.value.length;
    if (!fires(service, event)) continue;
    fired += 1;
    if (at < 0) at = chars;
    if (first) break;
    service.reset('prompt', 'user');
  }
  const { user, system } = process.cpuUsage(start);
  console.log(JSON.stringify({ ns: 1000 * (user + system), chars, at, fired }));
});
