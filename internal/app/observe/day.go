package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"gpuard/internal/core/trend"
	"gpuard/internal/host/sys"
)

// dayFile has the minutes of the last day, a line each. It is written anew when it has become twice as long as a day.
type dayFile struct {
	path string
	// Open for appending, and locked.
	file  *os.File
	lines int
}

// maxDayLines is how many lines the file has at most.
const maxDayLines = 2 * 24 * 60

// openDay reads the file in folder, which is made if it is missing. Lines that are none are left out: the last one may
// be cut.
func openDay(folder string) (*dayFile, []trend.Minute, error) {
	mode := uint32(0o700)
	if os.Geteuid() == 0 && strings.HasPrefix(folder, "/var/lib/") {
		// Of the machine: all may see who used what, as in gpuard status.
		mode = 0o755
	}

	dir, err := sys.OpenOwnFolder(folder, mode)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot keep the last day: %w", err)
	}

	_ = dir.Close()
	d := &dayFile{path: filepath.Join(folder, "day")}
	file, err := sys.OpenFile(d.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot keep the last day: %w", err)
	}

	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("cannot keep the last day: another gpuard serve of yours keeps it in %s", d.path)
	}

	d.file = file
	var minutes []trend.Minute
	err = eachLine(file, func(line []byte) {
		var m trend.Minute
		if json.Unmarshal(line, &m) == nil && (len(minutes) == 0 || minutes[len(minutes)-1].At.Before(m.At)) {
			minutes = append(minutes, m)
		}
		d.lines++
	})

	if err != nil {
		d.close()
		return nil, nil, fmt.Errorf("cannot read the last day in %s: %w", d.path, err)
	}

	if _, err := file.WriteString("\n"); err != nil {
		// Ends a line that a killed process has left.
		d.close()
		return nil, nil, fmt.Errorf("cannot keep the last day: %w", err)
	}

	return d, minutes, nil
}

// addMinute writes one minute; all are those to keep, with it.
func (d *dayFile) addMinute(m trend.Minute, all []trend.Minute) error {
	switch {
	case d == nil:
		return nil
	case d.lines >= maxDayLines:
		return d.rewriteFile(all)
	}

	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path, err)
	}

	// A minute that a power cut takes is a gap in a picture.
	_, err = d.file.Write(append(line, '\n'))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path, err)
	}

	d.lines++

	return nil
}

// rewriteFile writes the file with only these minutes. It keeps the file, because that is locked.
func (d *dayFile) rewriteFile(all []trend.Minute) error {
	var text []byte
	for _, m := range all {
		line, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", d.path, err)
		}
		text = append(append(text, line...), '\n')
	}

	err := d.file.Truncate(0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path, err)
	}

	_, err = d.file.Write(text)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", d.path, err)
	}

	d.lines = len(all)

	return nil
}

func (d *dayFile) close() {
	if d != nil {
		_ = d.file.Close()
	}
}
