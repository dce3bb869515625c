package setup

import (
	"gpuard/internal/core/policy"
	"gpuard/internal/core/shellquote"
)

// LoginProfile is what a login shell does by /etc/profile.d/gpuard.sh, for every shell that reads /etc/profile, and by
// a block in /etc/zsh/zprofile: without a lease it sees what "login" in config.yaml says. Nothing that fails there ends
// the login, and nothing but messages is printed, on standard error: scp and rsync speak through standard output.
func LoginProfile(program string) string { return loginPosix(program, policy.LoginAll) }

// LoginFish is the same for /etc/fish/conf.d/gpuard.fish.
func LoginFish(program string) string {
	return "status is-login; and " + loginFish(program, policy.LoginAll)
}

// loginPosix asks for a rule that files may make stricter.
func loginPosix(program string, rule policy.Login) string {
	program = shellquote.Sh(program)
	return "if [ -x " + program + " ]; then eval \"$(" + program + " env " + loginFlag(rule) + " || :)\" || :; fi\n"
}

func loginFish(program string, rule policy.Login) string {
	program = shellquote.Fish(program)
	return "test -x " + program + "; and " + program + " env " + loginFlag(rule) + " --format fish | source\n"
}

func loginFlag(rule policy.Login) string {
	if rule == policy.LoginAll {
		return "--login"
	}
	return "--login=" + string(rule)
}
