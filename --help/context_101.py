from monitor.context import Headroom, window_of

window = window_of("google:gemini-2.5-flash", agent_cap=200_000)
print(window.tokens, window.source, window.note)  # 200000 agent_cap the window itself is 1,048,576
print(window.problem, window.warning)  # None None: below 16,000 and below 32,000 there is something to say
print(Headroom(share=0.85).usable(window))  # so much may a prompt have: room for the answer is taken off
print(window.learned(150_000).tokens)  # the provider's own error has stated less
