# How all plots look: text that can be read where the plot is as wide as a phone, and one colour a system in all of them.
# lock_election stands out: it is the only thick line.
set terminal svg size 800,720 dynamic background '#ffffff' font 'sans-serif,24' noenhanced
set grid ytics lc rgb '#dddddd'
set key below samplen 2

# Of "system", or of "system, what it does"; other lines are numbered from 0 (i).
system_of(title) = strstrt(title, ',') ? title[1:strstrt(title, ',') - 1] : title
is_ours(title) = system_of(title) eq 'lock_election' || system_of(title) eq 'lock_election-async'
colour_of(title, i) = \
	system_of(title) eq 'lock_election' ? '#1f6feb' : \
	system_of(title) eq 'lock_election-async' ? '#79c0ff' : \
	system_of(title) eq 'table' ? '#9a6700' : \
	system_of(title) eq 'etcd' ? '#cf222e' : \
	system_of(title) eq 'zookeeper' ? '#1a7f37' : \
	system_of(title) eq 'redis' ? '#8250df' : \
	system_of(title) eq 'valkey' ? '#bc4c00' : \
	system_of(title) eq 'redis-everysec' ? '#d4a72c' : \
	system_of(title) eq 'redis-memory' ? '#bf3989' : \
	system_of(title) eq 'advisory' ? '#0a3069' : \
	system_of(title) eq 'select1' ? '#6e7781' : \
	word('#1f6feb #cf222e #1a7f37 #8250df #9a6700 #6e7781', i % 6 + 1)
dash_of(title) = strstrt(title, 'hot lock') ? 2 : 1
width_of(title) = is_ours(title) ? 6 : 2.5

# The title of block i of a file of blocks, each of which begins with it in quotes.
title_of(file, i) = system(sprintf("grep '^\"' '%s' | sed -n %dp | tr -d '\"\\n'", file, i + 1))
