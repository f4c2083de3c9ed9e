"""TLS, logins, principals and ACLs, delegation tokens, stored passwords, and the settings of all of them."""
