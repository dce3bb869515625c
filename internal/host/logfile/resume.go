package logfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// ResumeCopy appends to a log what a source prints that always begins again with its first byte, such as the log of a
// pod: what the file has of it already is left out. Which source that is, and where in the file it begins, is kept
// beside the file. While another process does the same, everything is left out.
func ResumeCopy(path, source string) (io.WriteCloser, error) {
	file, err := sys.OpenFile(path, unix.O_CREAT|unix.O_RDWR|unix.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write the log: %w", err)
	}

	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return discardWriter{}, file.Close()
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write the log: %w", err), file.Close())
	}

	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write the log: %w", err), file.Close())
	}

	start, err := startOfSource(path+".from", source, info.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write the log: %w", err), file.Close())
	}

	return &skippingWriter{file, max(0, info.Size()-start)}, nil
}

// startOfSource returns where in the log the source begins, and notes a new source, which begins at the end of the log.
func startOfSource(path, source string, end int64) (int64, error) {
	var from struct {
		Source string `json:"source"`
		Start  int64  `json:"start"`
	}

	text, err := os.ReadFile(path)
	if err == nil {
		// A damaged one is another source.
		_ = json.Unmarshal(text, &from)
	}
	if from.Source == source {
		return from.Start, nil
	}

	from.Source, from.Start = source, end

	// text and a number.
	text, _ = json.Marshal(from)

	return end, writeSource(path, text)
}

func writeSource(path string, text []byte) error {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it

	return dir.Replace(filepath.Base(path), text, 0o600)
}

// skippingWriter leaves out what it knows.
type skippingWriter struct {
	file  *os.File
	known int64
}

func (s *skippingWriter) Write(p []byte) (int, error) {
	skip := min(s.known, int64(len(p)))
	s.known -= skip
	if skip == int64(len(p)) {
		return len(p), nil
	}

	n, err := s.file.Write(p[skip:])

	return n + int(skip), err
}

func (s *skippingWriter) Close() error { return s.file.Close() }

// discardWriter leaves everything out.
type discardWriter struct{}

func (discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (discardWriter) Close() error                { return nil }
