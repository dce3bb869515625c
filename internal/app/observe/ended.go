package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/sys"
)

// Files of leases in the folder of the last day: those that have ended, a line each, and those that are followed.
const (
	endedFile = "leases-ended"
	openFile  = "leases"
	// Lines; the older half goes when there are so many.
	mostEnded = 50_000
)

// endedLog writes what becomes of leases. The lock of the dayFile is its lock too.
type endedLog struct {
	folder string
	file   *os.File
	lines  int
}

func openEnded(folder string) (*endedLog, []trend.EndedLease, error) {
	file, err := sys.OpenFile(filepath.Join(folder, endedFile), os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot keep the use of leases: %w", err)
	}

	e := &endedLog{folder: folder, file: file}
	if err := eachLine(file, func([]byte) { e.lines++ }); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("cannot read the use of leases: %w", err)
	}

	if _, err := file.WriteString("\n"); err != nil {
		// Ends a line that a killed process has left.
		_ = file.Close()
		return nil, nil, fmt.Errorf("cannot keep the use of leases: %w", err)
	}

	var open []trend.EndedLease
	text, err := os.ReadFile(filepath.Join(folder, openFile))
	if err == nil {
		// What cannot be read was written by nobody who is here.
		_ = json.Unmarshal(text, &open)
	}

	return e, open, nil
}

// writeLeases writes the leases that have ended, and those that have not.
func (e *endedLog) writeLeases(ended, open []trend.EndedLease) error {
	if e == nil {
		return nil
	}

	var text []byte
	for _, one := range ended {
		line, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", endedFile, err)
		}
		text = append(append(text, line...), '\n')
	}

	if _, err := e.file.Write(text); err != nil {
		return fmt.Errorf("cannot write %s: %w", endedFile, err)
	}

	e.lines += len(ended)
	if e.lines > mostEnded {
		if err := e.dropOlderHalf(); err != nil {
			return err
		}
	}

	kept, err := json.Marshal(open)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", openFile, err)
	}

	err = e.replaceFile(openFile, kept, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", openFile, err)
	}

	return nil
}

// dropOlderHalf forgets the older half.
func (e *endedLog) dropOlderHalf() error {
	path := filepath.Join(e.folder, endedFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot shorten %s: %w", path, err)
	}

	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	lines = lines[len(lines)/2:]

	// Everybody may see who used what.
	err = e.replaceFile(endedFile, []byte(strings.Join(lines, "")), 0o644)
	if err != nil {
		return fmt.Errorf("cannot shorten %s: %w", path, err)
	}

	_ = e.file.Close()
	e.file, err = sys.OpenFile(path, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	e.lines = len(lines)

	return err
}

// replaceFile writes one of the files in one step.
func (e *endedLog) replaceFile(name string, text []byte, mode uint32) error {
	folder, err := sys.FollowDir(e.folder)
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // nothing is written through it

	return folder.Replace(name, text, mode)
}

func (e *endedLog) close() {
	if e != nil {
		_ = e.file.Close()
	}
}

// ServeFolder is where the gpuard serve of this user keeps what it has seen; "" nowhere.
func ServeFolder(host *machine.Host) string {
	if folder, _ := host.Env.Lookup("STATE_DIRECTORY"); filepath.IsAbs(folder) && host.IsHardware() {
		// By StateDirectory= of systemd.
		return folder
	}
	if !host.IsHardware() {
		return ""
	}
	return host.HomePath("serve")
}

// EndedLeases are those of this machine that have ended: of this user (of root: of all users) by the lines that they
// left, and what a gpuard serve has watched, root's and that of this user.
func EndedLeases(ctx context.Context, host *machine.Host) ([]trend.EndedLease, error) {
	written, err := host.EndedLeases(ctx)
	if err != nil || !host.IsHardware() {
		return trend.MergeEnded(written, nil), err
	}
	seen, err := readServeLeases(host)

	return trend.MergeEnded(written, seen), err
}

// readServeLeases reads what root's gpuard serve has seen, and that of this user. Of a lease that both saw, the one
// that looked longer counts.
func readServeLeases(host *machine.Host) (list []trend.EndedLease, err error) {
	at := map[string]int{}
	for _, folder := range slices.Compact([]string{filepath.Join("/", host.Root, "var/lib/gpuard/serve"), ServeFolder(host)}) {
		if folder == "" {
			continue
		}

		some, err := readEnded(folder)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}

		for _, e := range some {
			key := e.Lease + " " + e.Since.UTC().String()
			i, known := at[key]
			switch {
			case !known:
				at[key] = len(list)
				list = append(list, e)
			case list[i].Until.Before(e.Until):
				list[i] = e
			}
		}
	}
	return list, nil
}

// readEnded reads the leases that have ended. A line that is none is left out: the last one may be cut.
func readEnded(folder string) (list []trend.EndedLease, err error) {
	err = readKept(filepath.Join(folder, endedFile), func(line []byte) {
		var e trend.EndedLease
		if json.Unmarshal(line, &e) == nil && e.Lease != "" {
			list = append(list, e)
		}
	})
	return list, err
}

// readKept calls f with each line of a file that a gpuard serve of root or of this user keeps. It takes no lock: that
// serve may run.
func readKept(path string, f func(line []byte)) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}

	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		// Somebody else's.
		return os.ErrPermission
	}
	if err := eachLine(file, f); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}

	return nil
}

// PastMinutes are the minutes that a gpuard serve has kept of the last day, oldest first: that of this user, else the
// machine's where its file can be read.
func PastMinutes(host *machine.Host) (minutes []trend.Minute) {
	for _, folder := range []string{ServeFolder(host), filepath.Join("/", host.Root, "var/lib/gpuard/serve")} {
		if folder == "" || !host.IsHardware() {
			continue
		}
		_ = readKept(filepath.Join(folder, "day"), func(line []byte) {
			// Without it the past is not drawn.
			var m trend.Minute
			if json.Unmarshal(line, &m) == nil && (len(minutes) == 0 || minutes[len(minutes)-1].At.Before(m.At)) {
				minutes = append(minutes, m)
			}
		})
		if len(minutes) > 0 {
			return minutes
		}
	}
	return nil
}
