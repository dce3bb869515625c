"""Mentions cuda and GPU, and has nothing to do with either: cuda:7."""
import os


class Box:
    def to(self, device):
        self.device = device
        return self

    def cuda(self, i=0):
        return self.to("cuda:%d" % i)


os.environ["PATH"] = "/opt/bin:" + os.environ["PATH"]
Box().to("cuda:5").cuda(3)
