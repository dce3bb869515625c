package check

// environmentChecks check the caller's variables and resource limits.
func environmentChecks() []Check {
	return []Check{
		maskHidesAll(), maskEmpty(), maskList(), misspeltMask(), containerMask(), deviceOrder(),
		oldNames(), debugNames(), jaxFractions(), jaxValues(), ncclFiles(),
		cpuThreads(), sharedMemory(), lockedMemory(),
	}
}
