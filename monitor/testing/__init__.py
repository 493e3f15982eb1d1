from monitor.testing.rechunk import cut as cut
from monitor.testing.rechunk import rechunk as rechunk
from monitor.testing.scripted import Do as Do
from monitor.testing.scripted import Pause as Pause
from monitor.testing.scripted import ScriptedStream as ScriptedStream
from monitor.testing.scripted import Stall as Stall
from monitor.testing.clock import FakeAlarm as FakeAlarm
from monitor.testing.clock import FakeClock as FakeClock
