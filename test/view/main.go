// Command view is gpuard-view for tests: TIMES=10 makes it ten times as fast, MINUTES=60 makes its minutes that much shorter, and
// files of the system are below $SITE.
package main

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/entry"
	"gpuard/internal/ui/chart"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/top"
	"gpuard/internal/ui/web"
)

func main() {
	var times machine.Times
	if factor, err := strconv.Atoi(os.Getenv("TIMES")); err == nil {
		times.Observe, times.Minute, times.Late = time.Second/time.Duration(factor), time.Minute/time.Duration(factor), 2*time.Second
	}
	if factor, err := strconv.Atoi(os.Getenv("MINUTES")); err == nil {
		times.Minute = time.Minute / time.Duration(factor)
	}
	os.Exit(entry.Start(cmp.Or(os.Getenv("SITE"), "/"), times, cli.Views{Serve: web.ServeSite, Top: top.Run, Used: chart.DrawUse, Waits: chart.DrawWaits, Compared: chart.DrawComparison}))
}
