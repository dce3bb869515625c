class Programs(object):
    """The environment of the process, and the programs that it starts."""

    def system(self, node, name):
        """The environment and programs; True when there is nothing more to say about the call."""
        args = node.args
        if name in ("os.putenv", "posix.putenv") and len(args) == 2:
            self.set(node, self.text(args[0]), args[1], "os.putenv")
            return True
        if name in ("os.unsetenv", "posix.unsetenv") and args:
            self.unset(node, self.text(args[0]), "os.unsetenv")
            return True
        if name.startswith(("os.environ.", "os.environb.")):
            self.environment(node, name.split(".")[2])
            return True
        if name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell") and args:
            self.program(node, args[0], True)
            return True
        if name.startswith("subprocess.") and name.split(".")[1] in RUNNERS:
            found = dict((k.arg, k.value) for k in node.keywords)
            what = args[0] if args else found.get("args")
            if what is not None:
                shell = found.get("shell")
                self.program(node, what, shell is not None and constant(shell) not in ("False", "0"))
            return True
        if name == "asyncio.create_subprocess_exec" and args:
            self.program(node, args, False)
            return True
        if name == "pty.spawn" and args:
            self.program(node, args[0], False)
            return True
        if name.startswith(("os.exec", "os.spawn", "os.posix_spawn")) and len(args) >= 2:
            if name.startswith("os.spawn"):
                args = args[1:]
            last = name.rstrip("e")
            own = args[-1] if name != last else None
            listed = args[1] if last[-1] == "v" or last[-2:] == "vp" or "posix" in name else args[1:-1] if own is not None else args[1:]
            self.program(node, listed, False, own)
            return True
        if name == "os.fork":
            self.say("call", node, name, args=[])
            return True
        if name == "os.getenv":
            self.read(node, self.text(args[0]) if args else None)
            return True
        return name.startswith("os.path")

    def read(self, node, key):
        """The program reads a variable, for more than to print it."""
        if key is not None and not self.printing:
            self.say("read", node, key)

    def environment(self, node, method):
        args = node.args
        key = self.text(args[0]) if args else None
        if method == "update":
            self.update(node, args, node.keywords, "os.environ.update")
        elif method == "setdefault" and len(args) > 1:
            self.set(node, key, args[1], "os.environ.setdefault")
        elif method == "__setitem__" and len(args) > 1:
            self.set(node, key, args[1], "os.environ[]")
        elif method in ("get", "__getitem__"):
            self.read(node, key)
        elif method == "pop":
            self.unset(node, key, "os.environ.pop")
        elif method == "__delitem__":
            self.unset(node, key, "del os.environ[]")
        elif method == "clear":
            self.unset(node, "*", "os.environ.clear")

    def update(self, node, args, keywords, how):
        for a in args:
            made = self.mapping(a)
            if made is not None:
                for k, v in made.pairs:
                    self.set(v if isinstance(a, ast.Dict) else node, k, v, how)
            elif isinstance(a, (ast.List, ast.Tuple)):
                for e in a.elts:
                    if isinstance(e, (ast.List, ast.Tuple)) and len(e.elts) == 2:
                        self.set(e, self.text(e.elts[0]), e.elts[1], how)
        for k in keywords:
            if k.arg:
                self.set(k.value, k.arg, k.value, how)
            else:
                self.update(node, [k.value], [], how)

    def program(self, node, what, shell, own=None):
        for k in node.keywords:
            if k.arg == "env":
                own = k.value
        inner = []
        if own is not None:
            made = self.mapping(own)
            for key, v in made.pairs if made else []:
                inner.append({"do": "set", "name": key, "at": self.at(v), "how": "env=", "value": self.shaped(v)})
            more = {"how": "env= alone" if made and made.alone else "env="}
        else:
            more = {}
        if inner:
            more["with"] = inner
        if isinstance(what, ast.Name):
            known = self.scope.find(what.id)
            what = known.node if isinstance(known, Words) else what
        if shell and not isinstance(what, list) and self.text(what) is not None:
            if more:
                self.say("text", node, "", **more)
            self.say("script", node, "", value=self.value(what), **more)
            return
        words = [self.shaped(what)] if shell and not isinstance(what, (list, ast.List, ast.Tuple)) else self.words(what)
        self.say("command", node, "", words=words, **more)

    def words(self, what):
        if isinstance(what, (ast.List, ast.Tuple)):
            what = what.elts
        if isinstance(what, list):
            found = []
            for w in what:
                if isinstance(w, ast.Starred):
                    inner = self.scope.find(w.value.id) if isinstance(w.value, ast.Name) else None
                    if isinstance(inner, Words):
                        found += self.words(inner.node)
                        continue
                found.append(self.word(w))
            return found
        if isinstance(what, ast.BinOp) and isinstance(what.op, ast.Add):
            return self.words(what.left) + self.words(what.right)
        if isinstance(what, ast.Name):
            known = self.scope.find(what.id)
            if isinstance(known, Words) and known.node is not what:
                return self.words(known.node)
        if isinstance(what, ast.Call):
            text = None
            if self.dotted(what.func) == "shlex.split" and what.args:
                text = self.text(what.args[0])
            elif isinstance(what.func, ast.Attribute) and what.func.attr == "split" and not what.args:
                text = self.text(what.func.value)
            if text is not None and not set(text) & set("'\"\\"):
                return [{"at": self.at(what), "text": t} for t in text.split()]
        return [self.word(what)]

    def word(self, node):
        if self.dotted(node) == "sys.executable":
            return {"at": self.at(node), "text": "python"}
        return self.value(node)
