package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The states in /proc/net/tcp (include/net/tcp_states.h).
const (
	tcpEstablished = "01"
	tcpListen      = "0A"
)

// ConnectedGroups reports which groups of processes have a TCP connection from or to a port of this machine, and which
// group listens on it: -1 if none does.
func (f FS) ConnectedGroups(number int, groups [][]int) (joined []bool, host int) {
	joined, host = make([]bool, len(groups)), -1

	// Inode to state.
	sockets := map[string]string{}
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(f.root, "self/net", table))
		for line := range strings.Lines(string(text)) {
			if w := strings.Fields(line); len(w) > 9 && (hasPort(w[1], number) || hasPort(w[2], number)) {
				sockets[w[9]] = w[3]
			}
		}
	}

	for i, pids := range groups {
		for _, pid := range pids {
			for _, inode := range f.socketsOf(pid) {
				switch sockets[inode] {
				case tcpEstablished:
					joined[i] = true
				case tcpListen:
					joined[i], host = true, i
				}
			}
		}
	}

	return joined, host
}

// hasPort reads "0100007F:735B".
func hasPort(address string, number int) bool {
	_, port, _ := strings.Cut(address, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	return err == nil && int(n) == number
}

func (f FS) socketsOf(pid int) (inodes []string) {
	links, _ := filepath.Glob(filepath.Join(f.root, strconv.Itoa(pid), "fd", "*"))
	for _, link := range links {
		target, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes
}

// lastLineWindow is how much of the end of a file is read for its last line, in bytes.
const lastLineWindow = 4096

// LastLine returns the last line that a group of processes wrote to a file as output or error, if no process of others
// writes to the same file; "" if there is none.
func (f FS) LastLine(pids, others []int) string {
	shared := map[string]bool{}
	for _, pid := range others {
		for _, fd := range []int{1, 2} {
			shared[f.fileKey(pid, fd)] = true
		}
	}

	line, newest := "", int64(0)
	for _, pid := range pids {
		for _, fd := range []int{1, 2} {
			if key := f.fileKey(pid, fd); key == "" || shared[key] {
				continue
			}
			if text, at := lastLineOf(filepath.Join(f.root, strconv.Itoa(pid), "fd", strconv.Itoa(fd))); text != "" && at > newest {
				line, newest = text, at
			}
		}
	}

	return line
}

// fileKey identifies the plain file that a descriptor refers to; "" another kind.
func (f FS) fileKey(pid, fd int) string {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(f.root, strconv.Itoa(pid), "fd", strconv.Itoa(fd)), &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ""
	}

	return fmt.Sprint(st.Dev, " ", st.Ino)
}

// lastLineOf returns the last line with text, and when the file was changed, in nanoseconds.
func lastLineOf(path string) (line string, changed int64) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0
	}

	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return "", 0
	}

	text := make([]byte, min(info.Size(), lastLineWindow))
	n, _ := file.ReadAt(text, info.Size()-int64(len(text)))
	lines := strings.FieldsFunc(string(text[:n]), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		line = strings.TrimSpace(lines[i])
		if line != "" {
			return line, info.ModTime().UnixNano()
		}
	}

	return "", 0
}
