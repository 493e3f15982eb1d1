import monitor

files = monitor.tools.McpServer("npx -y @modelcontextprotocol/server-filesystem .", name="files")
search = monitor.tools.McpServer("https://example.org/mcp", headers={"Authorization": "Bearer x"})
model = monitor.testing.ScriptedModel()
supervisor = monitor.Supervisor(model, tools=[files, search])
print(files.name, search.name)  # files example_org
