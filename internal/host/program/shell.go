package program

import (
	"errors"

	"golang.org/x/sys/unix"
)

// StartOrShell starts a program, or where it is a script without "#!" the shell with it, as execvp(3) does.
func StartOrShell(path string, argv []string, start func(path string, argv []string) error) error {
	err := start(path, argv)
	if errors.Is(err, unix.ENOEXEC) {
		err = start("/bin/sh", append([]string{"/bin/sh", path}, argv[1:]...))
	}
	return err
}
