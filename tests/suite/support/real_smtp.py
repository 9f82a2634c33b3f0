"""An SMTP server by aiosmtpd, with STARTTLS and AUTH, that stores what it accepts as python's email package reads it.

Arguments: user, password, folder, certificate, key. Prints its port; ends when its input ends.
"""

import email
import email.policy
import html.parser
import json
import pathlib
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

user, password, folder, cert, key = sys.argv[1:]


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.hrefs = []

    def handle_starttag(self, tag, attrs):
        self.hrefs += [value for name, value in attrs if tag == "a" and name == "href"]


class Store:
    count = 0

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.original_content, policy=email.policy.default)
        links = Links()
        links.feed(message.get_body(("html",)).get_content())
        stored = {
            "mail": envelope.mail_from,
            "rcpt": envelope.rcpt_tos,
            "subject": message["Subject"],
            "message_id": message["Message-ID"],
            "text": message.get_body(("plain",)).get_content().replace("\r\n", "\n"),
            "hrefs": links.hrefs,
        }
        self.count += 1
        (pathlib.Path(folder) / f"{self.count}.json").write_text(json.dumps(stored))
        return "250 2.0.0 Ok: queued as REAL1"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(success=data.login == user.encode() and data.password == password.encode(), handled=False)


tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(cert, key)


class AnyPort(Controller):
    def _trigger_server(self):
        """The stock one connects to the configured port, which is 0 here."""


controller = AnyPort(
    Store(),
    hostname="127.0.0.1",
    port=0,
    tls_context=tls,
    require_starttls=True,
    auth_required=True,
    authenticator=authenticate,
)
controller.start()
print(controller.server.sockets[0].getsockname()[1], flush=True)
sys.stdin.read()
controller.stop(no_assert=True)
