import asyncio

from pydantic import BaseModel, Field

import monitor
from monitor.testing import ScriptedModel, call


class Review(BaseModel):
    summary: str
    risk: float = Field(ge=0, le=1, description="0 is harmless")
    remarks: list[str] = []


model = ScriptedModel(
    [call("emit_value", name="summary", value="Fine."), call("emit_value", name="risk", value=20)],  # 20 is refused
    [call("emit_value", name="risk", value=0.2)],
)
outcome = asyncio.run(monitor.Supervisor(model, outputs=Review).run("Review it"))
print(repr(outcome.output))
assert outcome.output == Review(summary="Fine.", risk=0.2)
