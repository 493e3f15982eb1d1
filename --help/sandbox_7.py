from monitor.tools import McpServer, Sandbox, ShellTools, Workspace, find_sandbox

print(find_sandbox().kind)  # bubblewrap, landlock, sandbox-exec or none
shell = ShellTools(Workspace("."))  # "auto": the best one that works here
free = ShellTools(Workspace("."), sandbox=None)  # no sandbox
commits = ShellTools(Workspace("."), sandbox=Sandbox(write=[".git"], read=["/opt"], env=["GITHUB_TOKEN"], network=True))
offline = McpServer("npx -y @modelcontextprotocol/server-filesystem .", sandbox=Sandbox(network=False))
