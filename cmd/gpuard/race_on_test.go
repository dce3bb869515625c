//go:build race

package main

// raceEnabled: this test was built with the race detector, which makes every process slower and larger.
const raceEnabled = true
