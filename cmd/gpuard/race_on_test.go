//go:build race

package main

// raced: this test was built with the race detector, which makes every process slower and larger.
const raced = true
