from crewai import LLM, Agent, Crew, Task

import monitor
from monitor.integrations.crewai import Stopped, guarded_llm
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, text


def main() -> None:
    with LocalOpenAI([[Repeat(text("Let me check the file again. "), 1000)]]) as server:
        llm = LLM(model="openai/local", base_url=server.base_url, api_key="none")
        with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
            agent = Agent(role="reader", goal="read", backstory="You read.", llm=guarded_llm(llm, guard))
            task = Task(description="Is it done?", expected_output="yes or no", agent=agent)
            try:
                print(Crew(agents=[agent], tasks=[task]).kickoff())
            except Stopped as stopped:
                print(stopped)
    print(guard.outcome.reason, guard.outcome.turns)


main()
