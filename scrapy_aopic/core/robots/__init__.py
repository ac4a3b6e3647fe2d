"""robots.txt by RFC 9309, without I/O: what one says to a user agent, what is known of each origin, who fetches it.

An *origin* is a scheme, a name and a port, such as ``https://example.com``; each has one robots.txt.

In reading order:

* :mod:`.rules`: what a robots.txt allows
* :mod:`.state`: how long it holds, and when to try again
* :mod:`.fetches`: fetches in progress, with redirects from one origin to another
"""
