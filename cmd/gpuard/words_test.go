package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"gpuard/internal/host/sys"
)

// wordsOf are the arguments of a process, none of one that has ended. One that is just being executed has none for a moment, in which a
// look that counts processes would miss it.
func wordsOf(pid int) []string {
	begun := false
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if len(text) > 0 {
			return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		}
		p, there := sys.ReadProcess(pid)
		if !there || begun || time.Now().After(end) {
			return nil
		}
		begun = !p.Starting // maybe after its arguments were read
	}
}
