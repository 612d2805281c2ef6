"""Makes a problem from a live `nn.Module`, as source text and a file of weights. (torch)"""
