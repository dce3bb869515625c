package proc

import (
	"io"
	"os"
	"strconv"
	"strings"

	"gpuard/internal/core/gpu"
)

// User is the login name of uid from /etc/passwd, or the number where it is not listed there
// (users of a directory service are not).
func (f FS) User(uid uint32) string { return userName(f.users(), uid) }

// users reads passwd(5): name, password, uid, … separated by colons. The first entry of a uid wins, as in libc.
func (f FS) users() map[uint32]string {
	names := map[uint32]string{}
	file, err := os.Open(f.passwd)
	if err != nil {
		return names
	}
	defer file.Close()
	b, _ := io.ReadAll(io.LimitReader(file, 16<<20)) // what was read before an error is still true
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(line, ":", 4)
		if len(fields) < 4 || strings.HasPrefix(line, "#") {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		name := gpu.Clean(fields[0])
		if _, taken := names[uint32(uid)]; err == nil && name != "" && !taken {
			names[uint32(uid)] = name
		}
	}
	return names
}

func userName(names map[uint32]string, uid uint32) string {
	if name, ok := names[uid]; ok {
		return name
	}
	return strconv.FormatUint(uint64(uid), 10)
}
