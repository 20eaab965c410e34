"""What every test takes for granted."""

import signal

import tests.often  # noqa: F401  # its profile must be known before it is asked for

# Whoever starts tests in the background has SIGINT ignored, and so would have all that tests start
# and interrupt. A handler here becomes the default there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
