package space

import (
	"strings"
	"testing"
)

// TestMounts: names with the kernel's escapes, and malformed lines.
func TestMounts(t *testing.T) {
	all := ParseMounts(`21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,uid=7
36 21 0:30 / /mnt/with\040space\134and\011tab rw,nosuid master:4 propagate_from:2 - tmpfs tmpfs rw,uid=7,gid=7
40 36 0:31 /x /half\04 rw shared:5 master:6 - tmpfs none rw
short line
41 36 0:31 / /old
`)
	if len(all) != 4 {
		t.Fatalf("%d mounts: %+v", len(all), all)
	}
	want := []Mount{
		{21, "8:1", "/", "/", false, "ext4", "/dev/sda1", "rw,uid=7"},
		{36, "0:30", "/", "/mnt/with space\\and\ttab", true, "tmpfs", "tmpfs", "rw,uid=7,gid=7"},
		{40, "0:31", "/x", `/half\04`, true, "tmpfs", "none", "rw"},
		{41, "0:31", "/", "/old", false, "", "", ""},
	}
	for i, m := range all {
		if m != want[i] {
			t.Errorf("%+v, want %+v", m, want[i])
		}
	}
}

// TestSight: mount namespaces of systemd, containers and users. The mount of the folder is number 9.
func TestSight(t *testing.T) {
	const root, run = "1 0 8:1 / / rw shared:40 master:1 - ext4 /dev/sda1 rw\n", "2 1 0:24 / /run rw shared:41 master:5 - tmpfs tmpfs rw,mode=755\n"
	for name, tt := range map[string]struct {
		mounts string
		want   Sight
		why    string
	}{
		"a service: the machine's /run":              {root + "9 1 0:24 / /run rw shared:41 master:5 - tmpfs tmpfs rw,mode=755\n", Common, ""},
		"a service: the machine's /run/lock":         {root + run + "9 2 0:25 / /run/lock rw master:6 - tmpfs tmpfs rw,size=5120k\n", Common, ""},
		"a service: /var/tmp on /":                   {"9 0 8:1 / / rw shared:40 master:1 - ext4 /dev/sda1 rw\n" + run, Common, ""},
		"a service: / made read-only":                {"9 0 8:1 / / ro shared:40 master:1 - ext4 /dev/sda1 rw\n", Common, ""},
		"a service: ReadWritePaths=/var/tmp":         {root + "9 1 8:1 /var/tmp /var/tmp rw shared:42 master:1 - ext4 /dev/sda1 rw\n", Common, ""},
		"PrivateTmp=yes":                             {root + run + "9 1 8:1 /var/tmp/systemd-private-0123-x.service-abc/tmp /var/tmp rw shared:42 master:1 - ext4 /dev/sda1 rw\n", Private, "/var/tmp is private to this service"},
		"PrivateTmp=yes, a /var/tmp of its own":      {root + "9 1 0:40 /systemd-private-0123-x.service-abc/tmp /var/tmp rw shared:42 master:9 - tmpfs tmpfs rw\n", Private, "PrivateTmp="},
		"PrivateTmp=disconnected":                    {root + run + "9 1 0:99 / /var/tmp rw shared:77 - tmpfs tmpfs rw,mode=1777\n", Private, "/var/tmp was mounted in this mount namespace alone"},
		"TemporaryFileSystem=/run":                   {root + "9 1 0:99 / /run rw shared:77 - tmpfs tmpfs rw\n", Private, "/run was mounted in this mount namespace alone"},
		"BindPaths=/srv/leases:/run/lock":            {root + run + "9 2 8:1 /srv/leases /run/lock rw shared:77 master:1 - ext4 /dev/sda1 rw\n", Unclear, ""},
		"pam_namespace":                              {root + run + "9 1 8:1 /var/tmp/tmp-inst/alice /var/tmp rw master:1 - ext4 /dev/sda1 rw\n", Unclear, ""},
		"btrfs":                                      {"9 0 0:30 /@ / rw shared:40 master:1 - btrfs /dev/sda1 rw,subvol=/@\n", Common, ""},
		"btrfs, another subvolume":                   {"1 0 0:30 /@ / rw shared:40 master:1 - btrfs /dev/sda1 rw\n9 1 0:30 /@var_tmp /var/tmp rw shared:40 master:1 - btrfs /dev/sda1 rw\n", Unclear, ""},
		"ZFS":                                        {"9 0 0:30 / / rw shared:40 master:1 - zfs rpool/ROOT/ubuntu rw\n", Common, ""},
		"an image of OSTree":                         {"1 0 8:4 /ostree/deploy/f/deploy/0.0 / ro shared:40 master:1 - xfs /dev/sda4 rw\n9 1 8:4 /ostree/deploy/f/var /var rw shared:41 master:2 - xfs /dev/sda4 rw\n", Unclear, ""},
		"unshare -m":                                 {"9 0 8:1 / / rw - ext4 /dev/sda1 rw\n", Common, ""},
		"unshare -m: /run":                           {"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n9 1 0:24 / /run rw - tmpfs tmpfs rw,mode=755\n", Unclear, ""},
		"unshare -rm: a /run of one's own":           {"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n9 1 0:99 / /run rw - tmpfs none rw,uid=1000,gid=1000\n", Private, "/run was mounted in here by uid 1000"},
		"a user's own /run/user elsewhere":           {root + "3 1 0:50 / /run/user/1000 rw master:8 - tmpfs tmpfs rw,uid=1000\n9 1 0:24 / /run rw shared:41 master:5 - tmpfs tmpfs rw,mode=755\n", Common, ""},
		"bwrap --bind / /":                           {"9 0 8:1 / / rw,nosuid master:1 - ext4 /dev/sda1 rw\n3 9 0:99 / /dev rw - tmpfs tmpfs rw,uid=1000\n", Common, ""},
		"/ that is not shared, beside a dockerd":     {"9 0 8:1 / / rw - ext4 /dev/sda1 rw\n3 9 8:1 /var/lib/docker /var/lib/docker rw master:1 - ext4 /dev/sda1 rw\n", Common, ""},
		"its /run":                                   {"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n3 1 8:1 /var/lib/docker /var/lib/docker rw master:1 - ext4 /dev/sda1 rw\n9 1 0:24 / /run rw - tmpfs tmpfs rw,mode=755\n", Unclear, ""},
		"another disk at /":                          {"9 0 8:17 / / rw - ext4 /dev/sdb1 rw\n3 9 8:1 /srv /srv rw master:1 - ext4 /dev/sda1 rw\n", Private, "/ was mounted in this mount namespace alone"},
		"another disk at /, with a part of it":       {"9 0 8:17 / / rw - ext4 /dev/sdb1 rw\n3 9 8:17 /srv /mnt rw master:1 - ext4 /dev/sdb1 rw\n", Private, "/ was mounted in this mount namespace alone"},
		"bwrap --ro-bind /usr /usr":                  {"9 0 0:99 /newroot / rw - tmpfs tmpfs rw,uid=1000,gid=1000\n3 9 8:1 /usr /usr ro master:1 - ext4 /dev/sda1 rw\n", Private, "by uid 1000"},
		"bwrap of root":                              {"9 0 0:99 /newroot / rw - tmpfs tmpfs rw\n3 9 8:1 /usr /usr ro master:1 - ext4 /dev/sda1 rw\n", Private, "/ was mounted in this mount namespace alone"},
		"bwrap --bind /srv/system /":                 {"9 0 8:1 /srv/system / rw master:1 - ext4 /dev/sda1 rw\n", Unclear, ""},
		"docker run --pid host":                      {"9 0 0:99 / / rw master:412 - overlay overlay rw,lowerdir=/x\n3 9 0:5 / /dev rw - tmpfs tmpfs rw\n", Unclear, "this is a container"},
		"docker run --pid host, a mount of the host": {"9 0 0:99 / / rw - overlay overlay rw\n3 9 8:1 /srv /srv rw master:1 - ext4 /dev/sda1 rw\n", Unclear, "this is a container"},
		"podman run --pid host":                      {"1 0 0:99 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw\n9 1 0:98 / /run rw - tmpfs tmpfs rw,uid=1000,gid=1000\n", Private, "by uid 1000"},
		"a live system":                              {"9 0 0:20 / / rw - overlay overlay rw\n", Unclear, "this is a container"},
		"chroot":                                     {"7 1 0:4 / /proc rw - proc proc rw\n", Private, "this is a chroot"},
		"chroot into another disk":                   {"9 1 8:17 / / rw - ext4 /dev/sdb1 rw\n", Common, ""}, // cannot be distinguished from the machine's own
	} {
		got, why := (MountView{On: 9, All: ParseMounts(tt.mounts)}).JudgeSight()
		if got != tt.want || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
			t.Errorf("%s: %d, %q", name, got, why)
		}
	}
}
