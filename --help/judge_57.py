import monitor
from monitor.judges import DoneJudge, JudgeLines
from monitor.testing import ScriptedModel

small, other = ScriptedModel(name="small"), ScriptedModel(name="other")  # monitor.model("openai:gpt-5-nano"), ...
judge = monitor.LoopJudge(
    small,
    first_turn=8,
    share=0.03,  # of the run's tokens; None: without a bound
    threshold=0.7,  # from here on it is a finding
    lines=JudgeLines(unsure=0.5, sure=0.9),
    confirm_with=other,  # a second model, asked where the first finds something: its word counts
    timeout_s=30,
    counts=False,  # True: its tokens count for the run's limits and budgets
)
guard = monitor.Guard(judge=judge, task="Find the rain of May.")  # or judge="google:gemini-2.5-flash-lite"
supervisor = monitor.Supervisor(small, judge=["own model", DoneJudge(other)])  # several; None is off
print([one.name for one in supervisor.judges])
