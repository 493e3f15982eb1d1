import monitor


@monitor.detectors.as_detector(times=3)
def apologies(text: str) -> bool:
    """The model apologises again and again."""
    return "sorry" in text.lower()


with monitor.watch(iter(["I am sorry. "] * 9), detectors=[*monitor.default_detectors(), apologies]) as watched:
    for chunk in watched:
        print(chunk, end="")
print(watched.outcome.reason, "-", watched.outcome.detail)
