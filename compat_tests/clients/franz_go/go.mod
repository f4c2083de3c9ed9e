module barnabas/compat_tests/clients/franz_go

go 1.26.0

require github.com/twmb/franz-go v1.22.2
