//go:build race

package web

// raceEnabled: this test was built with the race detector, which makes every process larger.
const raceEnabled = true
