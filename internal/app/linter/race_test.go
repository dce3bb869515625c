//go:build race

package linter

const raceEnabled = true
