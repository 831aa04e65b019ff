package main

// The checks of certificates.

// soon makes a client that is expected not to connect give up early.
var soon = opts{"serverSelectionTimeoutMS": "2000"}

func wrongCertificate(c *C) {
	c.must(ping(c.client("tls", c.tls("tls", "ca.pem", "client.pem"))))
	distrustful := c.client("tls", c.tls("tls", "other-ca.pem", "").with(soon))
	c.expectError(ping(distrustful), "certificate signed by unknown authority")
	// This driver does not even show a certificate of an authority that the server did not name.
	o := c.tls("tls", "ca.pem", "other-client.pem").with(opts{"authMechanism": "MONGODB-X509"})
	c.expectError(ping(c.client("tls", o.with(soon))), "auth error")
}

func wrongHostName(c *C) {
	o := c.tls("wrong-host", "ca.pem", "").with(soon)
	c.expectError(ping(c.client("wrong-host", o)), "127.0.0.1")
	// This driver has no tlsAllowInvalidHostnames.
	c.must(ping(c.client("wrong-host", o.with(opts{"tlsInsecure": "true"}))))
}
