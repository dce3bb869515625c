package program

import (
	"bytes"
	"errors"
)

// Bounded keeps what is written until it would be more than Most, then fails, which closes the pipe to the program that
// writes. It embeds no buffer: io.Copy would fill that without asking (io.ReaderFrom).
type Bounded struct {
	Text bytes.Buffer
	Most int
	Full bool // more was written
}

var errTooMuch = errors.New("too much output")

func (w *Bounded) Write(p []byte) (int, error) {
	if w.Text.Len()+len(p) > w.Most {
		w.Full = true
		return 0, errTooMuch
	}
	return w.Text.Write(p)
}
