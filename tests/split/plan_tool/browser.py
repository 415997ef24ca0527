"""Firefox without a window, driven over its Marionette protocol: [type, id, command, parameters] as length:JSON."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

PREFERENCES = {"marionette.port": 0, "datareporting.policy.dataSubmissionEnabled": False, "app.update.enabled": False,
               "browser.shell.checkDefaultBrowser": False, "toolkit.telemetry.enabled": False,
               "browser.startup.homepage_override.mstone": "ignore", "network.captive-portal-service.enabled": False}


class Browser:
    def __init__(self, deadline=120):
        program = shutil.which("firefox-esr") or shutil.which("firefox")
        if not program:
            raise RuntimeError("no firefox-esr: scripts/setup.sh installs it")
        self.folder = tempfile.mkdtemp(prefix="browser")
        self.process = self.socket = None
        self.number = 0
        self.end = time.monotonic() + deadline
        try:
            self.start(program)
        except BaseException:
            self.close()
            raise

    def start(self, program):
        with open(os.path.join(self.folder, "user.js"), "w", encoding="utf-8") as file:
            for name, value in PREFERENCES.items():
                file.write(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n")
        self.process = subprocess.Popen(
            [program, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", self.folder],
            env=dict(os.environ, HOME=self.folder, MOZ_HEADLESS_WIDTH="1200", MOZ_HEADLESS_HEIGHT="1600"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Firefox chooses a free port, and writes its number into a file.
        told = os.path.join(self.folder, "MarionetteActivePort")
        while not self.socket:
            if self.process.poll() is not None or time.monotonic() > self.end:
                raise RuntimeError("firefox does not start")
            time.sleep(0.1)
            if os.path.exists(told):
                with open(told, encoding="utf-8") as file:
                    port = file.read().strip()
                if port:
                    self.socket = socket.create_connection(("127.0.0.1", int(port)), timeout=60)
        self.receive()  # the greeting
        self.command("WebDriver:NewSession", {})

    def receive(self):
        length = b""
        while not length.endswith(b":"):
            length += self.read(1)
        return json.loads(self.read(int(length[:-1])))

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise RuntimeError("firefox has ended")
            data += part
        return data

    def command(self, name, parameters):
        self.number += 1
        message = json.dumps([0, self.number, name, parameters]).encode()
        self.socket.sendall(str(len(message)).encode() + b":" + message)
        _, number, error, result = self.receive()
        if error or number != self.number:
            raise RuntimeError(f"{name}: {error}")
        return result

    def open(self, path):
        self.command("WebDriver:Navigate", {"url": "file://" + os.path.abspath(path)})

    def run(self, script, *arguments):
        """Runs the body of a function in the page and returns its result."""
        return self.command("WebDriver:ExecuteScript", {"script": script, "args": list(arguments)})["value"]

    def console(self, path):
        """Returns the errors and warnings of any kind that the page at this path wrote to the console."""
        self.command("Marionette:SetContext", {"value": "chrome"})
        messages = self.run("return Services.console.getMessageArray().map(m => String(m))")
        self.command("Marionette:SetContext", {"value": "content"})
        return [message for message in messages if os.path.basename(path) in message]

    def close(self):
        if self.socket:
            self.socket.close()
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
