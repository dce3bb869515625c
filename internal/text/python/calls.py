class Calls(object):
    """Expressions, inner parts first, and the calls in them."""

    def expressions(self, s):
        for child in s.__dict__.values():
            for one in child if child.__class__ is list else (child,):
                if isinstance(one, ast.expr):
                    if one.__class__ not in PLAIN:
                        self.expression(one)
                elif isinstance(one, ast.stmt):
                    self.block([one])

    def expression(self, node):
        """Steps of an expression, inner parts first."""
        kind = node.__class__
        if kind in PLAIN:
            return
        if kind is ast.Call:
            return self.call(node)
        if kind is ast.Attribute:
            if node.attr in VERSIONS:
                self.versioned(node, node.value)
            return self.expression(node.value)
        if kind is ast.Lambda:
            return self.perhaps([node.body])
        if kind is ast.IfExp:
            self.expression(node.test)
            arm = "%s%d" % ("g" if self.counts(node.test) else "i", self.number())
            self.perhaps([node.body], arm + ".0/")
            return self.perhaps([node.orelse], arm + ".1/")
        if kind is ast.BoolOp:
            self.expression(node.values[0])
            return self.perhaps(node.values[1:])
        if kind in COMPREHENSIONS:
            self.expression(node.generators[0].iter)
            for g in node.generators:
                self.forget(g.target)
            return self.perhaps([node.key, node.value] if kind is ast.DictComp else [node.elt])
        if kind is ast.Subscript and isinstance(node.value, ast.Call):
            return self.call(node.value, node)
        if kind is ast.Subscript and self.dotted(node.value) in ENVIRON:
            return self.read(node, self.key(node))
        for child in node.__dict__.values():
            what = child.__class__
            if what is list:
                for one in child:
                    if one.__class__ not in PLAIN and isinstance(one, ast.expr):
                        self.expression(one)
            elif what not in PLAIN and what not in OTHER:
                if isinstance(child, ast.expr):
                    self.expression(child)
                elif what.__name__ == "Index":
                    self.expression(child.value)
        if NAMED is not None and kind is NAMED:
            self.assign(node.target, node.value)

    def perhaps(self, nodes, arm=None):
        before = self.branch
        self.branch = before + (arm or "e%d.0/" % self.number())
        for n in nodes:
            self.expression(n)
        self.branch = before

    def call(self, node, index=None):
        func = node.func
        if func.__class__ is ast.Attribute:
            if func.value.__class__ not in PLAIN:
                self.expression(func.value)
        elif func.__class__ is not ast.Name:
            self.expression(func)
        before = self.printing
        self.printing = before or getattr(func, "id", getattr(func, "attr", "")) in PRINTERS
        for a in node.args:
            if a.__class__ not in PLAIN:
                self.expression(a)
        for k in node.keywords:
            if k.value.__class__ not in PLAIN:
                self.expression(k.value)
        self.printing = before
        self.drop(node)
        name = self.dotted(func)
        if isinstance(func, ast.Call) and self.dotted(func.func) == "ray.remote":
            more = [self.argument(k.arg or "**", k.value) for k in func.keywords]
            return self.say("call", node, "ray.remote", args=self.arguments(node) + more)
        if name is None:
            return
        root = name.split(".", 1)[0]
        if root in ("os", "subprocess", "posix", "asyncio", "pty"):
            if self.system(node, name):
                return
        if name in ("exec", "execfile"):
            self.scope.forget()
        if name == "setattr":
            return self.setattr(node)
        if name == "hasattr" and node.args:
            return self.versioned(node, node.args[0])
        if name in ("__import__", "importlib.import_module") and node.args:
            module = self.text(node.args[0])
            if module and module.split(".")[0] in LIBRARIES:
                self.say("import", node, module)
            return
        self.method(node, name)
        if root in LIBRARIES:
            if name.startswith(QUIET) and "Parallel" not in name and not any(k.arg in DEVICE_WORDS for k in node.keywords):
                return
        elif root == "":
            if name[1:] not in METHODS and not any(k.arg in DEVICE_WORDS for k in node.keywords):
                return
        elif name not in self.functions and name not in self.classes and name not in LEAVERS and not any(k.arg in USE_WORDS for k in node.keywords):
            return
        args = self.arguments(node)
        if index is not None:
            inner = index.slice.value if index.slice.__class__.__name__ == "Index" else index.slice
            if isinstance(inner, ast.expr):
                args.append(self.argument("[]", inner))
        if name in (".cuda", ".to") and is_measure(func.value) and (name == ".cuda" and not args or name == ".to" and len(args) == 1 and args[0]["text"] == "cuda"):
            return
        more = {"how": "as"} if root == "torch" and self.spelled(func) != root else {}
        self.say("call", node, name, args=args, **more)

    def spelled(self, func):
        """The first name of a call as it is written: "th" of th.cuda.is_available."""
        while isinstance(func, ast.Attribute):
            func = func.value
        return getattr(func, "id", "")

    def drop(self, node):
        """An engine without a name goes when the call is over that it is handed to, or asked."""
        handed = node.args + [k.value for k in node.keywords] + [getattr(node.func, "value", None)]
        if any(isinstance(h, ast.Call) and self.dotted(h.func) == "vllm.LLM" for h in handed):
            self.say("call", node, "del", args=[])

    def versioned(self, node, of):
        """The program looks which version of a library it has."""
        name = self.dotted(of) or ""
        if name.split(".")[0] in LIBRARIES:
            self.say("version", node, name)

    def setattr(self, node):
        if len(node.args) == 3 and constant(node.args[1]) is not None:
            base = self.dotted(node.args[0])
            if base and base.split(".")[0] in LIBRARIES:
                self.say("override", node, base + "." + constant(node.args[1]), value=self.value(node.args[2]))

    def method(self, node, name):
        """env.update(...) of a dict that may become the environment of a child."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGERS:
            self.mutate(node.func.value)
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("update", "setdefault", "pop"):
            return
        known = self.scope.find(self.path(node.func.value)) if self.path(node.func.value) else None
        if not isinstance(known, Mapping):
            return
        if node.func.attr == "update":
            for a in node.args:
                more = self.mapping(a) or Mapping([])
                known.pairs, known.alone = known.pairs + more.pairs, known.alone and more.alone
            known.pairs = known.pairs + [(k.arg, k.value) for k in node.keywords if k.arg]
            known.alone = known.alone and all(k.arg for k in node.keywords)
        elif node.args and self.text(node.args[0]) is not None:
            key = self.text(node.args[0])
            self.change(node.func.value, key, node.args[1] if node.func.attr == "setdefault" and len(node.args) > 1 else None)
