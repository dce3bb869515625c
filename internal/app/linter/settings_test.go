package linter

import "testing"

// TestFixSettings: each format is fixed in its own way, and the rest of the line stays.
func TestFixSettings(t *testing.T) {
	files := map[string][2]string{
		"one.service": {"[Service]\nExecStart=CUDA_VISIBLE_DEVICES=1 /usr/bin/python3 /opt/train.py\n", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1\nExecStart=/usr/bin/python3 /opt/train.py\n"},
		"two.service": {"[Service]\nEnvironment=CUDA_VISIBLE_DEVICES = 1 A=b\nEnvironment=ROCR_VISIBLE_DEVICES=0, 1, 2\nExecStartPre=/bin/true\nExecStart=-CUDA_DEVICE_ORDER=PCI_BUS_ID /opt/run\n",
			"[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1 A=b\nEnvironment=ROCR_VISIBLE_DEVICES=0,1,2\nExecStartPre=/bin/true\nExecStart=-/usr/bin/env CUDA_DEVICE_ORDER=PCI_BUS_ID /opt/run\n"},
		"a.desktop":    {"[Desktop Entry]\nExec = CUDA_VISIBLE_DEVICES=1 /opt/run %F\n", "[Desktop Entry]\nExec = env CUDA_VISIBLE_DEVICES=1 /opt/run %F\n"},
		"Dockerfile":   {"FROM a\nCMD [\"CUDA_VISIBLE_DEVICES=0\", \"python\"]\n", "FROM a\nCMD [\"env\", \"CUDA_VISIBLE_DEVICES=0\", \"python\"]\n"},
		"compose.yaml": {"services:\n  a:\n    image: x\n    environment: {ROCR_VISIBLE_DEVICES: 0,1, B: c} # é\n    gpus: [{device_ids: [0, \"1\"]}]\n  b:\n    image: x\n    environment: [A=é, CUDA_VISIBLE_DEVICES=0,1,2, B=c]\n", "services:\n  a:\n    image: x\n    environment: {ROCR_VISIBLE_DEVICES: \"0,1\", B: c} # é\n    gpus: [{device_ids: [\"0\", \"1\"]}]\n  b:\n    image: x\n    environment: [A=é, \"CUDA_VISIBLE_DEVICES=0,1,2\", B=c]\n"},
	}
	before := map[string]string{}
	for name, f := range files {
		before[name] = f[0]
	}
	root := lay(t, before)
	look(t, true, root)
	for name, text := range texts(t, root) {
		if text != files[name][1] {
			t.Errorf("%s holds\n%s\nwant\n%s", name, text, files[name][1])
		}
	}
}
