module cronoracle

go 1.22

require github.com/robfig/cron v1.2.0
