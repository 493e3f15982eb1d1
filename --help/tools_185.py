from monitor.tools import Rules

rules = Rules.parse("""
[[rules]]
name = "no pushes"
tool = "shell"
command = "git push"
decision = "deny"
reason = "pushes are made by people"
match = ["git push origin main", "cd x && git push", "git -C x push"]
not_match = ["git status", "git commit -m push"]

[[rules]]
tool = "shell"
command = ["git status", "git log", "ls"]
decision = "allow"
not_match = ["git status > file", "git status && rm x"]
""")
for command in ("sudo git push", "git status | ls", "git status && $X"):
    ruling = rules.judge("shell", {"command": command})
    print(command, "->", ruling.decision if ruling else "no rule")  # deny, allow, ask
