import monitor
from monitor.detectors import ToolPolicy, default_detectors

detectors = default_detectors(
    tools={
        "deploy_status": ToolPolicy(polling=True, loop_at=20),
        "book_table": ToolPolicy(side_effect=True, loop_at=2),
        "run": ToolPolicy(volatile=("pid", "duration_ms")),
        "search": ToolPolicy(loop_key=lambda arguments: arguments["q"].lower()),
        "heartbeat": ToolPolicy(exempt=True),
    }
)
guard = monitor.Guard(detectors=detectors, policy=monitor.Ladder(final_tools=("emit_value",)))
print([detector.name for detector in detectors])
