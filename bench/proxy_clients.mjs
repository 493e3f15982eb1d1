// node proxy_clients.mjs PACKAGES: the SDKs in the folder PACKAGES, as bench/clients.py orders them.
// A line in: {"form", "base", "name", "stream"}. A line out: what the program of a user gets.
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const { resolve } = createRequire(path.join(path.resolve(process.argv[2]), 'x.js'));
const load = (name) => import(pathToFileURL(resolve(name)));
const [{ default: OpenAI }, { default: Anthropic }, { GoogleGenAI }] = await Promise.all(
  ['openai', '@anthropic-ai/sdk', '@google/genai'].map(load),
);
const KEY = 'sk-of-the-bench';

async function chat({ base, name, stream }, said) {
  const client = new OpenAI({ apiKey: KEY, baseURL: base + '/v1', maxRetries: 0 });
  const request = { model: 'm', messages: [{ role: 'user', content: name }], stream };
  const calls = [];
  if (!stream) {
    const { choices: [choice] } = await client.chat.completions.create(request);
    said.text = choice.message.content ?? '';
    said.calls = (choice.message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]);
    said.end = choice.finish_reason;
    return;
  }
  said.calls = calls;
  for await (const chunk of await client.chat.completions.create(request)) {
    for (const choice of chunk.choices) {
      said.text += choice.delta.content ?? '';
      said.end = choice.finish_reason ?? said.end;
      for (const piece of choice.delta.tool_calls ?? []) {
        const call = (calls[piece.index] ??= ['', '']);
        call[0] += piece.function.name ?? '';
        call[1] += piece.function.arguments ?? '';
      }
    }
  }
}

async function responses({ base, name, stream }, said) {
  const client = new OpenAI({ apiKey: KEY, baseURL: base + '/v1', maxRetries: 0 });
  const request = { model: 'm', input: name, stream };
  let answer;
  if (stream) {
    for await (const event of await client.responses.create(request)) {
      if (event.type === 'response.output_text.delta') said.text += event.delta;
      answer = event.response ?? answer;
    }
  } else {
    answer = await client.responses.create(request);
    said.text = answer.output_text;
  }
  said.end = answer.status;
  said.calls = answer.output.filter((item) => item.type === 'function_call').map((item) => [item.name, item.arguments]);
}

async function anthropic({ base, name, stream }, said) {
  const client = new Anthropic({ apiKey: KEY, baseURL: base, maxRetries: 0 });
  const request = { model: 'm', max_tokens: 100, messages: [{ role: 'user', content: name }] };
  let message;
  if (stream) {
    const events = client.messages.stream(request);
    events.on('text', (text) => { said.text += text; });
    message = await events.finalMessage();
  } else {
    message = await client.messages.create(request);
    said.text = message.content.filter((block) => block.type === 'text').map((block) => block.text).join('');
  }
  said.calls = message.content.filter((block) => block.type === 'tool_use').map((block) => [block.name, JSON.stringify(block.input)]);
  said.end = message.stop_reason;
}

async function gemini({ base, name, stream }, said) {
  const client = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: base } });
  const request = { model: 'm', contents: name };
  const add = (answer) => {
    for (const candidate of answer.candidates ?? []) {
      said.end = candidate.finishReason ?? said.end;
      for (const part of candidate.content?.parts ?? []) {
        said.text += part.text ?? '';
        if (part.functionCall) said.calls.push([part.functionCall.name, JSON.stringify(part.functionCall.args)]);
      }
    }
  };
  if (stream) for await (const chunk of await client.models.generateContentStream(request)) add(chunk);
  else add(await client.models.generateContent(request));
}

const ASK = { 'openai-chat': chat, 'openai-responses': responses, anthropic, gemini };
for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line), said = { text: '', calls: [], end: null, status: null, raised: false };
  try {
    await ASK[order.form](order, said);
  } catch (error) {
    said.raised = true;
    said.status = error.status ?? null;
  }
  process.stdout.write(JSON.stringify(said) + '\n');
}
