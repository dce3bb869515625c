package machine

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gpuard/internal/host/files"
)

// TestTrusted: which owners and modes of a file are trusted, and an owner without a name.
func TestTrusted(t *testing.T) {
	names := func(uid uint32) string { return fmt.Sprint("u", uid) }
	for _, c := range []struct {
		machine  bool
		uid, gid uint32
		mode     os.FileMode
		want     string
	}{
		{true, 0, 0, 0o644, ""}, {false, 7, 7, 0o600, ""}, {false, 0, 0, 0o644, ""}, {false, 7, 7, 0o664, ""},
		{true, 7, 0, 0o644, "it belongs to u7, and only one of u0 counts there; sudo chown u0 f, or remove it"},
		{true, 65534, 65534, 0o644, "it belongs to u65534, and only one of u0 counts there; sudo chown u0 f, or remove it; in a user namespace"},
		{false, 65534, 65534, 0o644, "it belongs to u65534, and only one of u7 counts there; chown u7 f, or remove it"},
		{true, 0, 0, 0o664, "others than its owner may write it (mode 0664); sudo chmod go-w f"},
		{false, 7, 8, 0o664, "others than its owner may write it (mode 0664); chmod go-w f"},
		{false, 0, 0, 0o666, "others than its owner may write it"},
	} {
		err := trusted("f", files.Text{Access: files.Access{UID: c.uid, GID: c.gid, Mode: c.mode}}, c.machine, 7, names)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
