// Command gpuard-view is gpuard with the commands that show the machine all the time, serve and top, and with charts.
// gpuard starts it for them. It is a program of its own because Go prepares every library that a program has each time
// that it starts, used or not: those of a page, of metrics and of a full screen would make each gpuard run slower by a
// quarter.
package main

import (
	"os"

	"gpuard/internal/app/machine"
	"gpuard/internal/entry"
	"gpuard/internal/ui/chart"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/top"
	"gpuard/internal/ui/web"
)

func main() {
	os.Exit(entry.Start("/", machine.Times{}, cli.Views{Serve: web.ServeSite, Top: top.Run, Used: chart.DrawUse, Waits: chart.DrawWaits, Compared: chart.DrawComparison}))
}
