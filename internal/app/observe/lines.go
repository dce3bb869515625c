package observe

import (
	"bufio"
	"errors"
	"io"
)

// maxLineLength is how many bytes a line of our files has at most.
const maxLineLength = 1 << 20

// eachLine calls f with each line. One that is too long is left out: none of ours is.
func eachLine(from io.Reader, f func(line []byte)) error {
	in := bufio.NewReader(from)
	var line []byte
	for skip := false; ; {
		part, err := in.ReadSlice('\n')
		if !skip {
			line = append(line, part...)
		}

		skip = len(line) > maxLineLength
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case !skip && len(line) > 0:
			f(line)
		}

		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}

		line, skip = line[:0], false
	}
}
