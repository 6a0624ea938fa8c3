print "todo\n";
