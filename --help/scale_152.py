import monitor
from monitor.fleet import Supervisors
from monitor.testing import ScriptedModel

supervisors = Supervisors()
supervisors.add("poet", monitor.Supervisor(ScriptedModel()), version="2", also=["1"])
print([version for _, version in supervisors])  # ['1', '2']
