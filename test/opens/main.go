// Command opens is the only program in the images of the container tests: it says which device files of its folder it can open,
// and what its environment has. Its arguments are a pattern of files, and the seconds that it stays.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	end := make(chan os.Signal, 1) // as the first process of a container it gets no signal that it does not ask for
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	names, _ := filepath.Glob(os.Args[1])
	for _, name := range names {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err == nil {
			_ = file.Close()
			fmt.Println("opens", filepath.Base(name), time.Now().UnixNano())
			continue
		}
		fmt.Println("cannot open", filepath.Base(name))
	}
	for _, variable := range os.Environ() {
		if strings.Contains(variable, "VISIBLE") || strings.HasPrefix(variable, "GPUARD") {
			fmt.Println(variable)
		}
	}
	stay, err := time.ParseDuration(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	select {
	case <-time.After(stay):
	case <-end:
	}
	fmt.Println("ends", time.Now().UnixNano())
}
