import monitor

detector = monitor.ContentRepetition.article()
said = "the same fifty characters come in each of the rows, "
(finding,) = detector.feed("".join(f"{said}with {number}; " for number in range(10, 20)))
print(finding.level, finding.count)
