"""Hostile programs for a service, and how each may end; none may print `read`, or a secret.

`{pid}` and `{port}` are those of the service.
"""

HOSTILE = {
    "fork bomb": ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
                  "timeout"),
    "endless": ("while True: pass", "timeout"),
    "memory": ("b = bytearray(10 * 2**30)", "memory"),
    "flood": ("while True: print('x' * 10**4)", "output"),
    "exit": ("import os; os._exit(7)", "error"),
    "kill": ("import os, signal\nfor pid in (-1, 0, 1, os.getppid(), {pid}):\n"
             "    try: os.kill(pid, 9)\n    except OSError: pass", "ok or killed"),
    "write": ("import os\nfor place in ('/', '/tmp', '/etc', '/dev/shm', '/var/tmp', '/harness'):\n"
              "    try: open(place + '/planted', 'w')\n    except OSError: continue\n"
              "    print('read', place)", "ok"),
    "read": ("import os\nos.symlink('/etc/passwd', 'link')\n"
             "for path in ('/etc/passwd', 'link', '/proc/{pid}/environ', '/proc/{pid}/mem',\n"
             "             f'/proc/{{os.getppid()}}/environ', '/proc/self/environ'):\n"
             "    try: print('read', open(path, 'rb').read(99))\n    except OSError: pass\n"
             "print(dict(os.environ))", "ok"),
    "talk": ("import socket\nfor port in (8080, {port}):\n"
             "    try: socket.create_connection(('127.0.0.1', port), 1); print('read')\n"
             "    except OSError: pass", "ok"),
    "pipes": ("import os\nfor n in range(3, 64):\n    try: print('read', os.write(n, b'end 0'))\n"
              "    except OSError: pass", "ok"),
}  # fmt: skip
