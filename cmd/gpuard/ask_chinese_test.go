package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/test/executable"
)

// chineseEnv is the environment of a desktop whose language is Chinese.
func chineseEnv() []string {
	return []string{"LC_ALL=", "LC_MESSAGES=", "LC_CTYPE=", "LANG=zh_CN.UTF-8", "DISPLAY=:7", "WAYLAND_DISPLAY="}
}

// runForWindows runs gpuard without a terminal and returns each window that it showed: the words of zenity without those that set a size, in lines.
// What a lease is called, and when it began, is another text each time.
func runForWindows(t *testing.T, state, script string, args ...string) (runResult, []string) {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "zenity"), []byte("#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >>\"$LOG\"\necho == >>\"$LOG\"\n"+script+"\n"))
	log := filepath.Join(dir, "log")
	env := append(chineseEnv(), "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+log, "ANSWERED="+filepath.Join(dir, "answered"))
	cmd := gpuardCommand(t, state, env, append([]string{"run", "--machine", "demo", "--alert"}, args...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	got := runCommand(t, cmd)

	said, _ := os.ReadFile(log)
	text := regexp.MustCompile(`(?m)^--(width|height|print-column|separator)=.*\n`).ReplaceAllString(string(said), "")
	text = regexp.MustCompile(`由 \S+ 租用，租约 [a-z0-9]+ \(sleep，PID [0-9]+，始于 [0-9:]+\)`).ReplaceAllString(text, "由 USER 租用，租约 ID (sleep，PID 1，始于 TIME)")
	text = regexp.MustCompile(`等 \S+ 的租约 [a-z0-9]+ 结束`).ReplaceAllString(text, "等 USER 的租约 ID 结束")
	text = strings.TrimSuffix(text, "==\n")
	if text == "" {
		return got, nil
	}
	return got, strings.Split(text, "==\n")
}

// leaseGPU1 leases GPU 1 of the demo machine until the test is over.
func leaseGPU1(t *testing.T, state string) {
	t.Helper()
	f := &commandPrefix{TB: t, state: state, dir: t.TempDir()}
	holder := gpuardCommand(t, state, nil, "run", "--machine", "demo", "-q", "--device", "1", "--", "sleep", "1000")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	waitUntil(t, "GPU 1 is leased", func() bool { return f.countLeases() == 1 })
}

// choiceWindowText is the list as zenity gets it, with a text above it and the use of GPU 1.
func choiceWindowText(text, use string) string {
	const model = "NVIDIA A100-SXM4-80GB\n80.0 GiB\n"
	return "--list\n--title=gpuard\n--text=" + text + "\n--column=GPU\n--column=型号\n--column=空闲显存\n--column=状态\nany\n任意一块空闲的 GPU\n\n\n0\n" +
		model + "空闲\n1\n" + model + use + "\n2\n" + model + "空闲\n3\n" + model + "空闲\nc\n不用 GPU\n\n\n"
}

// TestAskWindowInChinese: the window that asks is in the language of the desktop, what it says of a wrong answer, too.
func TestAskWindowInChinese(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	leaseGPU1(t, state)
	const leased = "由 USER 租用，租约 ID (sleep，PID 1，始于 TIME)"
	const answers = `
n=$(cat "$ANSWERED" 2>/dev/null)
echo "x$n" >"$ANSWERED"
case $n in "") echo 99;; x) echo 0 2;; xx) echo 2;; esac`
	got, shown := runForWindows(t, state, answers, "--ask", "-q", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
	if got.code != 0 || got.out != "2\n" {
		t.Errorf("%+v", got)
	}
	checkEqual(t, "windows", shown, []string{
		choiceWindowText("用哪块 GPU？", leased),
		choiceWindowText(`不能选 "99"：请输入 0, 1, 2 或 3、Enter 或 c`, leased),
		choiceWindowText("选了 2 块，需要 1 块", leased),
	})

	got, shown = runForWindows(t, state, "exit 1", "--ask", "--gpus", "2", "--", "true")
	if got.code != 125 || got.err != "gpuard: 已取消：没有租用任何设备\n" {
		t.Errorf("a window that was closed: %+v", got)
	}
	want := strings.NewReplacer("任意一块空闲的", "任意 2 块空闲的", "--column=GPU", "--multiple\n--column=GPU").Replace(choiceWindowText("用哪 2 块 GPU？", leased))
	checkEqual(t, "two GPUs", shown, []string{want})

	const twice = `if test -e "$ANSWERED"; then exit 1; fi; : >"$ANSWERED"; echo 0 2 0`
	_, shown = runForWindows(t, state, twice, "--ask", "--gpus", "2", "--", "true")
	checkEqual(t, "one GPU twice", shown, []string{want, strings.Replace(want, "用哪 2 块 GPU？", "不能选两次 0", 1)})
}

// TestAlertInChinese: the window that says why nothing was started is in the language of the desktop. A launcher does not wait: what would
// wait is an error there.
func TestAlertInChinese(t *testing.T) {
	t.Parallel()
	state := stateFolder(t)
	leaseGPU1(t, state)
	for words, want := range map[string]string{
		"--no-wait --device 1 -- true": "无法分配 GPU 1：由 USER 租用，租约 ID (sleep，PID 1，始于 TIME)\n等 USER 的租约 ID 结束，或者指定另一个设备，或者不指定，由 gpuard 选\n",
		"--no-wait --gpus 4 -- true": "无法分配 4 块 GPU：4 块中有 3 块空闲\n  GPU 0, 2-3  空闲\n  GPU 1       占用    由 USER 租用，租约 ID (sleep，PID 1，始于 TIME)\n" +
			"改为申请 3 块 GPU (--gpus 3)，或者等 USER 的租约 ID 结束\n",
		"--device 9 -- true":        "找不到设备 9：这台机器有 0-3\n写编号、UUID (或足以区分的开头)，或者写 PCI 地址；清单见 gpuard status\n",
		"--device 0 -- nosuch":      `无法运行 "nosuch"：PATH 里没有这个命令`,
		"--device 0 -- /nosuch/bin": `无法运行 "/nosuch/bin"：没有这个文件`,
		"--device 0 -- cd":          `无法运行 "cd"：它是 shell 的内部命令，不是程序；请把整行交给 shell：bash -c 'cd ...'`,
		"--ask --device 0 -- true":  "--ask 不能与 --device 同时使用：已经指定了设备；去掉其中一个",
		"--ask --ranks=own -- true": "--ask 不能与 --ranks 同时使用：进程的个数由设备的个数决定；去掉其中一个",
		"--mem 900G -- true":        "无法分配 1 块 GPU (空闲显存 900 GiB)：4 块都不可用 (4 块显存不够)\n  GPU 0-3  不可用  总显存 80 GiB，扣除驱动占用的 640 MiB 后，放不下 900 GiB\n减少显存 (--mem 79G)\n",
		"--device 0 -- /etc/passwd": `无法运行 "/etc/passwd"：没有权限；它没有执行权限：chmod +x /etc/passwd`,
	} {
		_, shown := runForWindows(t, state, "", strings.Fields(words)...)
		checkEqual(t, words, shown, []string{"--error\n--no-markup\n--title=gpuard\n--text=" + want + "\n"})
	}
}

// TestAskTerminalInChinese: the table of a terminal is in Chinese, too, and its columns stand below each other.
func TestAskTerminalInChinese(t *testing.T) {
	t.Parallel()
	f := &commandPrefix{TB: t, state: stateFolder(t), dir: t.TempDir()}
	s := startInteractive(t, f, "bash", chineseEnv()...)
	s.typeKeys("gpuard run --ask true\n")
	s.waitForScreen(`GPU  型号                   空闲显存  状态\r?\n0    NVIDIA A100-SXM4-80GB  80.0 GiB  空闲\r?\n(.|\n)*用哪块 GPU？\[Enter：任意一块空闲的；0 1 2 3；c：不用 GPU\] $`)
	s.typeKeys("\x03")
	s.waitForScreen(`gpuard: 已取消：没有租用任何设备`)
}
