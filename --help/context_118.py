from monitor import AssistantMessage, UserMessage
from monitor.messages import Text
from monitor.chunks import UsageReport
from monitor.context import ContextMeter, History

history = History([UserMessage((Text("What changed in anyio 4.11?"),))])
meter = ContextMeter(history, instructions="Be brief.")
print(meter.count())  # an estimate, with the bounds that 19 of 20 lie in
meter.sent()
meter.reported(UsageReport(input_tokens=1_234, output_tokens=56))
meter.answered()  # the call ended well: from now on the report counts, and an estimate of what follows it
history.append(AssistantMessage((Text("Task groups start faster."),)))
print(meter.count().reported)  # 1290
