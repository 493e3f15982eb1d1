from pathlib import Path

import monitor
import monitor.testing

Path("agent-monitor.toml").write_text('policy = "ladder"\n\n[ToolCallRepetition]\nloop_at = 8\n')

config = monitor.load_settings("agent-monitor.toml")  # without a path: as the command looks for it
guard = monitor.Guard(detectors=config.detectors(), policy=config.policy())
supervisor = monitor.Supervisor(
    monitor.testing.ScriptedModel("Hello."),
    compaction=config.compaction(),
    calls=monitor.runs.ToolCalls(approval=config.approval(), parallel=config.max_parallel_tools or 16),
)
print(config.settings, [detector.name for detector in config.detectors()])
