package python_test

// spelling is a few lines of Python and the steps that they are. new is syntax that Python 3.6 does not have.
type spelling struct {
	text, want string
	new        bool
}

func spellings() []spelling {
	return []spelling{
		{text: "import os\nos.environ['A'] = '1'", want: `2 set A "1"`},
		{text: "import os as o\no.environ['A'] = '1'", want: `2 set A "1"`},
		{text: "from os import environ\nenviron['A'] = b'1'", want: `2 set A "1"`},
		{text: "from os import environ as e\ne.update({'A': '1'}, B='2')", want: "2 set A \"1\"\n2 set B \"2\""},
		{text: "import os\nos.environ.update([('A', '1'), ('B', '2')])", want: "2 set A \"1\"\n2 set B \"2\""},
		{text: "import os\nd = {'A': '1'}\nd['B'] = '2'\nos.environ.update(d)\nos.environ.update(**d)", want: "4 set A \"1\"\n4 set B \"2\"\n5 set A \"1\"\n5 set B \"2\""},
		{text: "import os\nos.environ.setdefault('A', '1')\nos.environ.__setitem__('A', '2')", want: "2 set A \"1\"\n3 set A \"2\""},
		{text: "import os\nos.environ |= {'A': '1'}", want: `2 set A "1"`},
		{text: "import os\nos.putenv('A', '1')\nos.unsetenv('A')", want: "2 set A \"1\"\n3 unset A"},
		{text: "import os\nos.environ.pop('A', None)\ndel os.environ['A']\nos.environ.clear()", want: "2 unset A\n3 unset A\n4 unset *"},
		{text: "import os\nos.environ['A'] += ',1'", want: `2 set A ?`},
		{text: "import os\nN = 'A'\nV = 3\nos.environ[N] = str(V)\nos.environ[N + 'B'] = f'{V},4'", want: "4 set A \"3\"\n5 set AB \"3,4\""},
		{text: "import os\nids = [0, 1]\nos.environ['A'] = ','.join(map(str, ids))\nos.environ['B'] = ','.join(['2', '3'])", want: "3 set A \"0,1\"\n4 set B \"2,3\""},
		{text: "import os\nv = '1'\nv = input()\nos.environ['A'] = v", want: `4 set A <v#1>`},
		{text: "import os\nif x:\n    v = '1'\nelse:\n    v = '2'\nos.environ['A'] = v", want: `6 set A <v#1>`},
		{text: "import os\ndef f(v):\n    os.environ['A'] = v", want: "2 define f\n3 set A <v> in f"},
		{text: "import os\nfor k, v in {'A': '1', 'B': '2'}.items():\n    os.environ[k] = v", want: "3 set A \"1\"\n3 set B \"2\""},
		{text: "import os\nr = int(os.environ.get('LOCAL_RANK', 0))\nos.environ['A'] = str(r)", want: `3 set A <LOCAL_RANK>`},
		{text: "import os\nr = os.environ['LOCAL_RANK']\nos.environ['A'] = '%s' % r\nos.environ['B'] = '{}'.format(r)", want: "3 set A <LOCAL_RANK>\n4 set B <LOCAL_RANK>"},
		{text: "import os\nos.environ['A'] = str(int(os.getenv('LOCAL_RANK')) % 2)", want: `2 set A ?`},
		{text: "import os\nif __name__ == '__main__':\n    os.environ['A'] = '1'\nif x:\n    os.environ['A'] = '1'", want: "3 set A \"1\"\n5 set A \"1\" maybe"},
		{text: "import os, subprocess\nenv = os.environ.copy()\nenv['A'] = '1'\nsubprocess.run(['python', 'x.py'], env=env)", want: `4 command "python" "x.py" with A "1"`},
		{text: "import os, subprocess as sp\nsp.Popen(['a'], env=dict(os.environ, A='1'))", want: `2 command "a" with A "1"`},
		{text: "import os\nfrom subprocess import check_call\ncheck_call(['a', b], env={**os.environ, 'A': '1'})", want: `3 command "a" <b> with A "1"`},
		{text: "import os, subprocess\nenv = os.environ\nenv['A'] = '1'\nsubprocess.run(['a'])", want: "3 set A \"1\"\n4 command \"a\""},
		{text: "import subprocess, sys, shlex\nsubprocess.call([sys.executable, '-m', 'm'])\nsubprocess.run(shlex.split('a --b c'))", want: "2 command \"python\" \"-m\" \"m\"\n3 command \"a\" \"--b\" \"c\""},
		{text: "import subprocess\ncmd = ['torchrun', '--nproc_per_node', '2']\nsubprocess.run(cmd + ['x.py'])", want: `3 command "torchrun" "--nproc_per_node" "2" "x.py"`},
		{text: "import os, subprocess\nos.system('A=1 b')\nsubprocess.run('c d', shell=True)\nos.popen('e')", want: "2 script \"A=1 b\"\n3 script \"c d\"\n4 script \"e\""},
		{text: "import os\nos.execvpe('a', ['a', 'b'], {'A': '1'})\nos.execlp('a', 'a', 'c')\nos.spawnvp(os.P_WAIT, 'a', ['a'])", want: "2 command \"a\" \"b\" with A \"1\"\n3 command \"a\" \"c\"\n4 command \"a\""},
		{text: "import asyncio\nasync def f():\n    await asyncio.create_subprocess_exec('a', 'b')", want: "2 define f\n3 command \"a\" \"b\" in f"},
		{text: "import torch.cuda as c\nc.is_available = lambda: False\nsetattr(c, 'device_count', f)", want: "1 import torch.cuda\n2 override torch.cuda.is_available ?\n3 override torch.cuda.device_count <f>"},
		{text: "from torch import cuda\ncuda.set_device(0)", want: "1 import torch\n2 call torch.cuda.set_device \"0\""},
		{text: "import torch\nd = torch.device('cuda:1')\nx.to(d)\ny.cuda(non_blocking=True)", want: "1 import torch\n2 call torch.device \"cuda:1\"\n3 call .to \"cuda:1\"@d\n4 call .cuda non_blocking=\"True\""},
		{text: "import torch\nd = 'cuda:1' if torch.cuda.is_available() else 'cpu'\nx.to(d)", want: "1 import torch\n2 call torch.cuda.is_available\n3 call .to <d>@d \"cuda:1\"@? \"cpu\"@?"},
		{text: "import importlib\nt = importlib.import_module('torch')\nt.cuda.init()", want: "2 import torch\n3 call torch.cuda.init"},
		{text: "def f():\n    import torch\n    torch.cuda.init()\nf()", want: "1 define f\n2 import torch in f\n3 call torch.cuda.init in f\n4 call f"},
		{text: "import torch\nclass T:\n    def __init__(self):\n        self.go()\n    def go(self):\n        torch.cuda.init()\nT()", want: "1 import torch\n3 define T.__init__\n4 call T.go in T.__init__\n5 define T.go\n6 call torch.cuda.init in T.go\n7 call T"},
		{text: "from multiprocessing import get_context\nc = get_context('spawn')\nc.Process(target=f)", want: "1 import multiprocessing\n2 call multiprocessing.get_context \"spawn\"\n3 call multiprocessing.spawn.Process target=<f>@f"},
		{text: "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nelse:\n    import jax", want: "5 import jax maybe"},
		{text: "try:\n    import torch\nexcept ImportError:\n    torch = None", want: `2 import torch maybe`},
		{text: "import os\nif (v := '1'):\n    os.environ['A'] = v", want: `3 set A "1" maybe`, new: true},
		{text: "import os\nmatch x:\n    case 1:\n        os.environ['A'] = '1'", want: `4 set A "1" maybe`, new: true},
		{text: "class Box:\n    environ = {}\nos = Box()\nos.environ['A'] = '1'", want: ""},
		{text: "def f(os):\n    os.environ['A'] = '1'", want: ""},
		{text: "# os.environ['A'] = '1'\n'''\nimport torch\ntorch.cuda.init()\n'''\nx = 'import torch'", want: ""},
	}
}
