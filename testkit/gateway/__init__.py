"""Tables, requests and upstreams for the tests of the gateway."""
